/* lane_open.h - lanes come and go, with the sequences and streams that are on them. */
#ifndef COPPICE_CLIENT_LANE_OPEN_H
#define COPPICE_CLIENT_LANE_OPEN_H

struct coppice;

/* Frees all lanes and their sequences without asking the daemon, for the session ends. */
void lane_drop_all(struct coppice *c);

#endif
