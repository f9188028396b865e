/**
 * The settings of the embedded PostgreSQL. They are passed at each start and not written to postgresql.conf,
 * so that an update of Minato, or a machine with more memory, changes them.
 */
import { availableParallelism, totalmem } from 'node:os';

const MB = 1024 * 1024;

/** The name of the embedded server, by which a session knows it. */
export const CLUSTER_NAME = 'minato';

/** `diskBytes`: the size of the disk of the database. */
export function serverSettings(
  memoryBytes: number,
  cores: number,
  diskBytes = Number.POSITIVE_INFINITY,
): Record<string, string> {
  const memoryMB = Math.floor(memoryBytes / MB);
  // A fortieth: the write-ahead log takes at most half of the free space that the node reserves
  // (node.diskFreeMinPercent).
  const walMB = clamp(diskBytes / MB / 40, 128, 2048);
  return {
    // Connections use only the unix socket, whose folder only the server's user and root may enter.
    listen_addresses: '',
    unix_socket_permissions: '0700',
    max_connections: '250',

    // Other pages are in the page cache of the system. With eight times as much, 20,000 events beside 100,000
    // stored ones cost the server about the same CPU (docs/decisions/0017-an-idle-node-idles.md).
    shared_buffers: `${clamp(memoryMB / 8, 128, 256)}MB`,
    effective_cache_size: `${clamp(memoryMB / 2, 256, 65536)}MB`,
    work_mem: `${clamp(memoryMB / 512, 4, 16)}MB`,
    maintenance_work_mem: `${clamp(memoryMB / 32, 64, 512)}MB`,

    // I1: an event with OK true survives a power cut.
    fsync: 'on',
    full_page_writes: 'on',
    synchronous_commit: 'on',
    // The binaries are built without lz4 and zstd. With pglz an event after a checkpoint took 6.0–6.6 ms of
    // the server's CPU instead of 0.36–0.46, and one of 1,990 tags 856–990 ms instead of 14–44
    // (docs/performance.md#floods).
    wal_compression: 'off',
    wal_buffers: '16MB',
    max_wal_size: `${walMB}MB`,
    min_wal_size: '80MB',
    // A backup that hangs keeps the log of its time. Beyond this its session is ended.
    max_slot_wal_keep_size: `${4 * walMB}MB`,
    // A checkpoint removes the log before it instead of keeping its files for later, so that a burst does not
    // occupy the disk for hours. A new file costs about 8 ms of CPU for 16 MB of log
    // (docs/decisions/0019-fewer-bytes.md).
    wal_recycle: 'off',
    checkpoint_timeout: '15min',
    checkpoint_completion_target: '0.9',

    // For many short queries, compiling or parallel execution costs more than it gains. Parallel queries
    // would also need more shared memory than the 64 MB of a container's /dev/shm.
    jit: 'off',
    max_parallel_workers_per_gather: '0',
    max_parallel_maintenance_workers: `${clamp(cores / 2, 0, 4)}`,
    io_workers: `${clamp(cores / 2, 2, 8)}`,
    random_page_cost: '1.1',

    autovacuum: 'on',
    // Each round starts a process for each database, even if nothing has changed.
    autovacuum_naptime: '60s',
    autovacuum_max_workers: `${clamp(cores / 2, 2, 4)}`,

    timezone: 'UTC',
    log_timezone: 'UTC',
    lc_messages: 'C',
    log_destination: 'stderr',
    logging_collector: 'off',
    log_min_messages: 'warning',
    // Statements contain what people wrote. The node reports its own failed statements.
    log_min_error_statement: 'panic',
    log_checkpoints: 'off',
    // The SQLSTATE first: readers of the log match it, never the text.
    log_line_prefix: '%e ',
    cluster_name: CLUSTER_NAME,
  };
}

/**
 * The resources of this process: the limit of a container if there is one, otherwise those of the machine.
 */
export function machineSize(): { memoryBytes: number; cores: number } {
  // Without a limit this is 0, or the largest number of the kernel.
  const limit = process.constrainedMemory?.() ?? 0;
  const memoryBytes = limit > 0 && limit < totalmem() ? limit : totalmem();
  return { memoryBytes, cores: availableParallelism() };
}

function clamp(value: number, min: number, max: number): number {
  return Math.min(max, Math.max(min, Math.floor(value)));
}
