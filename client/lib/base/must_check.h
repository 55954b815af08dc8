/* must_check.h - marks functions that can fail: who calls one looks at what it returns. */
#ifndef COPPICE_CLIENT_MUST_CHECK_H
#define COPPICE_CLIENT_MUST_CHECK_H

#define MUST_CHECK __attribute__((warn_unused_result))

#endif
