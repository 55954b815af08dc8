/*
 * status.h - the exit statuses of coppiced, coppicectl and coppice-agent, the same in all.
 */
#ifndef COPPICE_CLI_STATUS_H
#define COPPICE_CLI_STATUS_H

enum cli_status {
	CLI_OK = 0,
	CLI_FAILED = 1, /* understood, and it did not work: the reason is on stderr */
	CLI_USAGE = 2, /* the command line or the config is not understood */
};

#endif
