/* must_check.h - marks what can fail: a caller that does not look at the result is warned, which is
 * an error in the project's own builds. */
#ifndef COPPICE_MUST_CHECK_H
#define COPPICE_MUST_CHECK_H

#define MUST_CHECK __attribute__((warn_unused_result))

#endif
