"""The node image of a cluster's machines, where it is not the current one."""

from __future__ import annotations

from sqlalchemy import delete, insert, select

from headway.store.db import cluster_schema as t
from headway.store.db.rows import NodeImage
from headway.store.db.transactions import StorePart


class NodeImageStore(StorePart):
    """Stores the node image of each cluster."""

    async def get(self, cluster: str) -> NodeImage:
        """Returns the node image of a cluster; empty tags if none was set."""
        i = t.node_images
        async with self._database.read() as db:
            row = (await db.execute(select(i.c.pinned, i.c.before).where(i.c.cluster == cluster))).first()
        return NodeImage(**row._mapping) if row else NodeImage()

    async def set(self, cluster: str, image: NodeImage) -> None:
        """Sets the node image of a cluster."""
        i = t.node_images
        async with self._database.write() as db:
            await db.execute(delete(i).where(i.c.cluster == cluster))
            await db.execute(insert(i).values(cluster=cluster, pinned=image.pinned, before=image.before))
