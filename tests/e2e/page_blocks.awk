# The C on pages. With -v whole=N: block N, as it is. Else: all but the first two, which are
# programs, each as a function of its own, for page_blocks.c.
BEGIN { programs = 2 }

function close_function()
{
	if (inside && n > programs)
		print "}\n"
}

function open_function()
{
	printf "void block_%d(void);\nvoid block_%d(void)\n{\n", n, n
	printf "#line %d \"%s\"\n", FNR + 1, FILENAME
}

/^```/ {
	if (!whole)
		close_function()
	inside = !inside && $0 == "```c"
	n += inside
	if (inside && n > programs && !whole)
		open_function()
	next
}

inside && (whole ? n == whole : n > programs)
