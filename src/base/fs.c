/* The file systems of a network, by their numbers in statfs(2): one list for the agent's root and for the database. */
#include "base/fs.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdint.h>
#include <sys/vfs.h>

static const uint32_t network_fs[] = {
	0x6969, /* NFS */
	0x517B, /* SMB */
	0xFF534D42, /* CIFS */
	0xFE534D42, /* SMB2 */
	0x65735546, /* FUSE: sshfs and its like */
	0x01021997, /* 9P */
	0x5346414F, /* AFS */
	0x6B414653, /* AFS of the kernel */
	0x73757245, /* Coda */
	0x00C36400, /* Ceph */
	0x47504653, /* GPFS */
	0x0BD00BD0, /* Lustre */
	0x19830326, /* BeeGFS */
	0xAAD7AAEA, /* PanFS */
	0x01161970, /* GFS2 */
	0x7461636F, /* OCFS2 */
	0x0187, /* autofs: not mounted yet, so not there at every login */
};

int fs_is_network(const char *path)
{
	struct statfs st;

	if (statfs(path, &st) < 0)
		return -errno;
	for (size_t i = 0; i < ARRAY_LEN(network_fs); i++)
		if ((uint32_t)st.f_type == network_fs[i])
			return 1;
	return 0;
}
