"""SQLAlchemy: submissions within a session. The run is accepted if, and only if, the session's transaction commits.

    async with AsyncSession(engine) as session, session.begin():
        session.add(order)
        await submit(session, send_invoice, order_id=order.id)

The session and the app must use the same PostgreSQL database, by asyncpg or psycopg (3).
"""

from __future__ import annotations

from typing import Any, ParamSpec, TypeVar

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from mainspring.sdk.handle import RunHandle
from mainspring.sdk.task import Task

P = ParamSpec("P")
R = TypeVar("R")


async def submit(session: AsyncSession, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
    """Submit a run of a task in the transaction of an async session."""
    connection = await session.connection()
    # The transaction of a session begins on the server with its first statement.
    await connection.execute(text("SELECT 1"))
    raw: Any = await connection.get_raw_connection()
    return await task.options(connection=raw.driver_connection).submit(*args, **kwargs)


def submit_blocking(session: Session, task: Task[P, R], /, *args: P.args, **kwargs: P.kwargs) -> RunHandle[R]:
    """Submit a run of a task in the transaction of a session without an event loop, by psycopg."""
    connection = session.connection()
    connection.execute(text("SELECT 1"))
    raw: Any = connection.connection.driver_connection
    return task.app.sync(task.options(connection=raw).submit, *args, **kwargs)
