# What coppice-bench decode has printed of each round: the lines that each must have, and whether
# what follows from others does. Status 1, and which it is, where not. With -v own=1 processes that
# are apart have programs of their own, and so passes.
$1 == "decode" { of[$2, $3] = $4; rounds[$2] += $3 == "token_p50" }

function must(round, metric)
{
	if (!((round, metric) in of))
		complain(round ": no " metric)
}

function complain(what)
{
	print "decode_lines: " what
	bad = 1
}

function differ(a, b)
{
	return a < 0.999 * b || a > 1.001 * b
}

END {
	for (round in rounds) {
		if (!rounds[round])
			continue
		n++
		must(round, "limit_reading")
		must(round, "limit_multiplying")
		must(round, "limit_of_time")
		must(round, "held_weights")
		if (round !~ /_apart$/ || own) {
			must(round, "pass")
			must(round, "idle_between_tokens")
		}
		reading = of[round, "limit_reading"] + 0
		multiplying = of[round, "limit_multiplying"] + 0
		if (differ(of[round, "limit"], reading > multiplying ? reading : multiplying))
			complain(round ": the limit is not the longer of the two")
		if (differ(of[round, "limit_of_time"] * of[round, "token_p50"], of[round, "limit"]))
			complain(round ": the limit is not that part of the time")
		if (of[round, "clients_on_device"] != 0)
			complain(round ": clients have a device open")
		if (own && round ~ /_apart$/ && of[round, "rows_a_pass"] > rows)
			complain(round ": a pass has rows of several processes")
	}
	if (n < least)
		complain(n + 0 " rounds, and not " least)
	exit bad
}
