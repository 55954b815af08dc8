# The C on pages. With -v first=1: the first block, as it is. Else: all but the first, each as a function of its own, for
# page_blocks.c.
function close_function()
{
	if (inside && n > 1)
		print "}\n"
}

function open_function()
{
	printf "void block_%d(void);\nvoid block_%d(void)\n{\n#line %d \"%s\"\n", n, n, FNR + 1, FILENAME
}

/^```/ {
	if (!first)
		close_function()
	inside = !inside && $0 == "```c"
	n += inside
	if (inside && n > 1 && !first)
		open_function()
	next
}

inside && (first ? n == 1 : n > 1)
