/*
 * mps.c - the control daemon is started by the environment's folders and ended by its own command;
 * processes that are started meanwhile inherit the folders.
 */
#include "mps.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[] = "/tmp/coppice-mps-XXXXXX";

void mps_start(void)
{
	if (!mkdtemp(folder))
		err(1, "no temporary folder");
	setenv("CUDA_MPS_PIPE_DIRECTORY", folder, 1);
	setenv("CUDA_MPS_LOG_DIRECTORY", folder, 1);
	if (system("nvidia-cuda-mps-control -d") != 0)
		errx(1, "nvidia-cuda-mps-control does not start");
}

void mps_stop(void)
{
	char command[96];

	if (system("echo quit | nvidia-cuda-mps-control >/dev/null") != 0)
		warnx("nvidia-cuda-mps-control did not end");
	unsetenv("CUDA_MPS_PIPE_DIRECTORY");
	unsetenv("CUDA_MPS_LOG_DIRECTORY");
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	if (system(command) != 0)
		warnx("%s stays", folder);
}
