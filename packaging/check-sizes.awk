# Says which lines have over 100 columns, with tabs of 8, and which files over 600 lines; status 1
# if there are any.
#
#   LC_ALL=C awk -f packaging/check-sizes.awk FILE...
#
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

FNR == 601 { complain("over 600 lines") }
(n = columns($0)) > 100 { complain(n " columns") }
END { exit bad }
