/*
 * must_check.h - a mark for functions whose result nobody may ignore.
 */
#ifndef COPPICE_KVSTORE_MUST_CHECK_H
#define COPPICE_KVSTORE_MUST_CHECK_H

#define MUST_CHECK __attribute__((warn_unused_result))

#endif
