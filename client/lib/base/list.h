/* list.h - doubly linked, the link inside the object. A link that is in no list points to
 * itself. */
#ifndef COPPICE_CLIENT_LIST_H
#define COPPICE_CLIENT_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
	struct list *prev, *next;
};

#define list_object(link, type, member) ((type *)((char *)(link)-offsetof(type, member)))

static inline void list_init(struct list *list)
{
	list->prev = list;
	list->next = list;
}

static inline bool list_is_empty(const struct list *list)
{
	return list->next == list;
}

static inline void list_add(struct list *list, struct list *link)
{
	link->prev = list->prev;
	link->next = list;
	list->prev->next = link;
	list->prev = link;
}

static inline void list_remove(struct list *link)
{
	link->prev->next = link->next;
	link->next->prev = link->prev;
	list_init(link);
}

#endif
