# Says which lines have over 100 columns, with tabs of 8, which files over 600 lines, and whose head
# says nothing but to see its header; status 1 if there are any.
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

BEGIN { most = page ? 120 : 100 }
FNR == 601 && !page { complain("over 600 lines") }
FNR == 1 { bare = 0 }
FNR == 1 && / - see [a-z_.\/0-9]+ \*\/$/ { complain("a head that says nothing") }
FNR == 2 && /^ \* .* - see [a-z_.\/0-9]+$/ { bare = 1 }
FNR == 3 && bare && /^ \*\/$/ { complain("a head that says nothing") }
(n = columns($0)) > most { complain(n " columns") }
END { exit bad }
