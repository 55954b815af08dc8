/* device_memory.h - roles of device_test.c's clients that are about memory: device_stem.h. */
#ifndef COPPICE_DEVICE_MEMORY_H
#define COPPICE_DEVICE_MEMORY_H

int role_hold(const char *socket, char **args);
int role_thief(const char *socket, char **args);
int role_liar(const char *socket, char **args);
int role_keeper(const char *socket, char **args);
int role_tidy(const char *socket, char **args);
int role_view(const char *socket, char **args);
int role_weights(const char *socket, char **args);
int role_cancelled(const char *socket, char **args);

#endif
