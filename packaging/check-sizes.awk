# Says which lines have over 100 columns, with tabs of 8, which files over 600 lines, whose head
# says nothing but to see its header, and whether functions of C have more than 11 lines in the
# middle, or one of ten more than 24; status 1 if there is any such.
#
#   LC_ALL=C awk [-v page=1] -f packaging/check-sizes.awk FILE...
#
# page: a line may have 120, and a file as many lines as it wants.
# In that locale a character of several bytes has as many; its first one counts.

function columns(line,    at)
{
	gsub(/[\200-\277]/, "", line)
	while ((at = index(line, "\t")) > 0)
		sub(/\t/, substr("        ", (at - 1) % 8 + 1), line)
	return length(line)
}

function complain(why)
{
	print FILENAME ":" FNR ": " why
	bad = 1
}

# The least number of lines that so many parts of a hundred of all functions do not go beyond.
function lines_of(percent,    n, sum)
{
	while (sum * 100 < n_functions * percent)
		sum += n_long[++n]
	return n + 0
}

function hold(percent, most,    n)
{
	if ((n = lines_of(percent)) <= most)
		return
	print percent " % of " n_functions " functions have up to " n " lines, and should have " \
		most
	bad = 1
}

BEGIN { most = page ? 120 : 100 }
FNR == 1 { is_c = FILENAME ~ /\.(c|h|cu|cuh)$/; head = 0 }
is_c && /^[A-Za-z_]/ && !head { head = FNR }
is_c && /^$|;$|^#/ { head = 0 }
is_c && /^{$/ { body = head }
is_c && /^}$/ && body { n_long[FNR - body + 1]++; n_functions++; body = head = 0 }
FNR == 601 && !page { complain("over 600 lines") }
FNR == 1 { bare = 0 }
FNR == 1 && / - see [a-z_.\/0-9]+ \*\/$/ { complain("a head that says nothing") }
FNR == 2 && /^ \* .* - see [a-z_.\/0-9]+$/ { bare = 1 }
FNR == 3 && bare && /^ \*\/$/ { complain("a head that says nothing") }
(n = columns($0)) > most { complain(n " columns") }
END { hold(50, 11); hold(90, 24); exit bad }
