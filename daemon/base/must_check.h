/*
 * must_check.h - marks what can fail: a caller that does not look at the result does not compile.
 */
#ifndef COPPICED_MUST_CHECK_H
#define COPPICED_MUST_CHECK_H

#define MUST_CHECK __attribute__((warn_unused_result))

#endif
