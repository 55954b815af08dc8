/*
 * hung_file.c - a FUSE server in a process of its own, which is a whole file system in its four
 * answers: it says that there is one file, and never what is in it. Its mount is seen by it alone,
 * and goes with it.
 */
#include "hung_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILE_BYTES (1u << 20)
#define REQUEST_BYTES (1u << 18)
#define FILE_PATH "/tmp/coppice-hung-XXXXXX"

static void answer(int device, const struct fuse_in_header *in, const void *body, size_t bytes)
{
	struct {
		struct fuse_out_header head;
		uint8_t body[256];
	} out = {.head = {.len = (uint32_t)(sizeof(out.head) + bytes), .unique = in->unique}};

	if (bytes)
		memcpy(out.body, body, bytes);
	if (write(device, &out, out.head.len) < 0)
		_exit(1);
}

static void serve_one(int device, const struct fuse_in_header *in)
{
	static const struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION,
						  .minor = FUSE_KERNEL_MINOR_VERSION,
						  .max_write = 4096};
	static const struct fuse_attr_out attr = {
		.attr = {.ino = 1, .size = FILE_BYTES, .mode = S_IFREG | 0444, .nlink = 1}};
	static const struct fuse_open_out opened = {.open_flags = FOPEN_DIRECT_IO};

	if (in->opcode == FUSE_INIT)
		answer(device, in, &init, sizeof(init));
	else if (in->opcode == FUSE_GETATTR)
		answer(device, in, &attr, sizeof(attr));
	else if (in->opcode == FUSE_OPEN)
		answer(device, in, &opened, sizeof(opened));
	else if (in->opcode == FUSE_FLUSH)
		answer(device, in, NULL, 0);
}

_Noreturn static void serve(int device)
{
	uint8_t *request = malloc(REQUEST_BYTES);

	for (;;) {
		ssize_t n = request ? read(device, request, REQUEST_BYTES) : -1;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < (ssize_t)sizeof(struct fuse_in_header))
			_exit(0);
		serve_one(device, (const void *)request);
	}
}

/* The device of a file system that is mounted on a file of this process's own view; -errno. */
static int mount_alone(const char *path)
{
	int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[96];

	if (device < 0)
		return -errno;
	snprintf(options, sizeof(options), "fd=%d,rootmode=100444,user_id=0,group_id=0,allow_other",
		 device);
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("hung", path, "fuse", MS_NOSUID | MS_NODEV, options) < 0)
		return -errno;
	return device;
}

static void send_fd(int socket, int fd)
{
	char room[CMSG_SPACE(sizeof(fd))] = {0}, byte = 0;
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = room,
				 .msg_controllen = sizeof(room)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);

	*head = (struct cmsghdr){CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(head), &fd, sizeof(fd));
	if (sendmsg(socket, &message, 0) < 0)
		_exit(1);
}

/* -1: it could not be had. */
static int receive_fd(int socket)
{
	char room[CMSG_SPACE(sizeof(int))], byte;
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = room,
				 .msg_controllen = sizeof(room)};
	int fd = -1;

	if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&message))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

/* Opens it from a second process, as an open waits for the server's answers. */
_Noreturn static void server_main(int socket, const char *path)
{
	int device = mount_alone(path);

	unlink(path);
	if (device < 0)
		_exit(1);
	if (fork() == 0) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		close(device);
		if (fd >= 0)
			send_fd(socket, fd);
		_exit(0);
	}
	close(socket);
	serve(device);
}

bool hung_file_open(struct hung_file *ret)
{
	char path[] = FILE_PATH;
	int ends[2], file = mkstemp(path);

	if (file < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return false;
	close(file);
	ret->server = fork();
	if (ret->server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ends[0]);
		server_main(ends[1], path);
	}
	close(ends[1]);
	ret->fd = receive_fd(ends[0]);
	close(ends[0]);
	unlink(path);
	if (ret->fd >= 0)
		return true;
	hung_file_end(ret);
	return false;
}

void hung_file_end(struct hung_file *file)
{
	kill(file->server, SIGKILL);
	waitpid(file->server, NULL, 0);
	if (file->fd >= 0)
		close(file->fd);
}
