/*
 * fake.h - what the fake driver and the fake module agree on: device memory is a memfd of the
 * daemon. A descriptor of it is not the memfd itself, as one of a driver is a file that can be
 * polled and holds what it names: it is a socket that has the memfd among what nobody has read.
 */
#ifndef COPPICE_FAKE_H
#define COPPICE_FAKE_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* 16 bytes: of device 0; another one's last letter is as many on as its index says. */
#define FAKE_UUID "coppice fake gpu"
#define FAKE_ARENA_BYTES (UINT64_C(2) << 20) /* arenas of the tests */

union fake_control {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

/* The memfd is the socket's from then on. Where the kernel lets no more descriptors go, it stays
 * what it is. */
static inline int fake_wrap(int memfd)
{
	char byte = 0;
	struct iovec iov = {&byte, 1};
	union fake_control control = {{0}};
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.bytes,
			   .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&m);
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return memfd;
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(memfd));
	memcpy(CMSG_DATA(head), &memfd, sizeof(memfd));
	if (sendmsg(ends[1], &m, MSG_NOSIGNAL) != 1) {
		close(ends[0]);
		ends[0] = memfd;
	} else {
		close(memfd);
	}
	close(ends[1]);
	return ends[0];
}

/* Another descriptor of the memfd; -1: there is none. */
static inline int fake_unwrap(int fd)
{
	char byte;
	struct iovec iov = {&byte, 1};
	union fake_control control;
	struct msghdr m = {.msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control.bytes,
			   .msg_controllen = sizeof(control.bytes)};
	struct cmsghdr *head;
	int memfd = -1;

	if (recvmsg(fd, &m, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
		return fcntl(fd, F_DUPFD_CLOEXEC, 0);
	head = CMSG_FIRSTHDR(&m);
	if (head && head->cmsg_type == SCM_RIGHTS)
		memcpy(&memfd, CMSG_DATA(head), sizeof(memfd));
	return memfd;
}

#endif
