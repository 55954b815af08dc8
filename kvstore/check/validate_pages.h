/* validate_pages.h - the part of store_validate that is about pages and extents. */
#ifndef COPPICE_KVSTORE_VALIDATE_PAGES_H
#define COPPICE_KVSTORE_VALIDATE_PAGES_H

#include "note.h"

/* Holdings of limited domains are tenants, those of others have the model's. */
MUST_CHECK int validate_tenants(struct validate *v);
/* A page is charged to one domain, so the domains' bytes are the pages'. */
MUST_CHECK int validate_pages(struct validate *v);

#endif
