/*
 * decode_look.c - reads coppicectl status as JSON and nvidia-smi's column, and looks which
 * processes have the device open.
 */
#ifdef BENCH_HAVE_AGENT
#include "decode_look.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MIB 1048576.0
#define SMI "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits 2>/dev/null"

static uint64_t number(const json_t *status, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(status, key));
}

void decode_look(const struct bench_daemon *daemon, struct decode_look *ret)
{
	json_t *status = bench_daemon_ask(daemon, "status");

	*ret = (struct decode_look){
		.n_passes = number(status, "passes"),
		.n_rows = number(status, "pass_rows"),
		.pass_ns = number(status, "pass_ns"),
		.weights_bytes = (double)number(status, "weights_bytes"),
		.pool_bytes = (double)number(status, "pool_bytes_used"),
		.page_bytes = (double)number(status, "page_bytes"),
	};
	json_decref(status);
}

double decode_device_bytes(void)
{
	FILE *out = popen(SMI, "r");
	double mib, sum = 0;
	int n = 0;

	while (out && fscanf(out, "%lf", &mib) == 1) {
		sum += mib;
		n++;
	}
	if (!out || pclose(out) != 0 || n == 0)
		return -1;
	return sum * MIB;
}

static bool is_device(const char *path)
{
	static const char prefix[] = "/dev/nvidia";

	return strncmp(path, prefix, sizeof(prefix) - 1) == 0;
}

bool decode_uses_device(pid_t pid)
{
	char folder[64], path[320], target[PATH_MAX];
	const struct dirent *entry;
	bool uses = false;

	snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)pid);
	DIR *dir = opendir(folder);

	while (dir && (entry = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		const ssize_t n = readlink(path, target, sizeof(target) - 1);

		target[n > 0 ? n : 0] = 0;
		uses = uses || is_device(target);
	}
	if (dir)
		closedir(dir);
	return uses;
}
#endif
