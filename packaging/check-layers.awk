# Reads C sources; complains of every include that leaves the arrows
#
#	client -> proto <- daemon -> kvstore ; daemon -> kernels ; client, daemon -> cli
#
# tests may include everything. coppice-agent is an app like any other: it sees coppice.h alone.

BEGIN {
	may["proto"] = "proto"
	may["cli"] = "cli"
	may["client"] = "client proto cli"
	may["kvstore"] = "kvstore"
	may["kernels"] = "kernels"
	may["daemon"] = "daemon proto kvstore kernels cli"
	n_bad = 0
}

function complain(why)
{
	printf "%s:%d: %s\n", FILENAME, FNR, why
	n_bad++
}

function folder_of(path)
{
	sub(/^\.\//, "", path)
	sub(/\/.*/, "", path)
	return path
}

# "../work.h" in kernels/plan/plan.h is kernels/work.h
function climbed(path, target)
{
	sub(/^\.\//, "", path)
	sub(/[^\/]*$/, "", path)
	while (sub(/^\.\.\//, "", target))
		sub(/[^\/]*\/$/, "", path)
	return path target
}

/^[ \t]*#[ \t]*include[ \t]*"/ {
	from = folder_of(FILENAME)
	if (!(from in may))
		next
	split($0, quoted, "\"")
	target = quoted[2]
	if (target ~ /^\.\.\//)
		target = climbed(FILENAME, target)
	if (target ~ /control\.pb-c\.h$/)
		to = "proto"
	else if (target ~ /\//)
		to = folder_of(target)
	else
		to = from
	if (!(to in may))
		next
	if (index(" " may[from] " ", " " to " ") == 0)
		complain(from " may not use " to ": \"" target "\"")
	if (FILENAME ~ /^(\.\/)?client\/agent\// && to == "proto")
		complain("coppice-agent may use coppice.h alone: \"" target "\"")
}

END {
	exit n_bad > 0
}
