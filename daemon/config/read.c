/*
 * read.c - the order in which a config comes together.
 *
 * Faults of the file and of the flags are all said before anything is given up; what only the whole
 * can tell is looked at when its parts are right.
 */
#include "read.h"

#include "check.h"
#include "file.h"
#include "flags.h"

#include <errno.h>

int config_read(struct config *config, int argc, char **argv)
{
	struct value_target target = {.config = config};
	struct flags flags = {0};
	int r_file, r_flags;
	int r = flags_parse(&flags, argc, argv);

	if (r < 0 || flags.answered)
		return r < 0 ? r : 1;
	r_file = file_read(&target, flags.file ? flags.file : FLAGS_DEFAULT_FILE,
			   flags.file != NULL);
	r_flags = flags_apply(&flags, &target);
	if (r_file < 0 || r_flags < 0)
		return -EINVAL;
	return check_whole(&target);
}
