/**
 * The settings of the embedded PostgreSQL. They are passed at each start and not written to postgresql.conf,
 * so that an update of Minato, or a machine with more memory, changes them.
 */
import { availableParallelism, totalmem } from 'node:os';

const MB = 1024 * 1024;

export function serverSettings(memoryBytes: number, cores: number): Record<string, string> {
  const memoryMB = Math.floor(memoryBytes / MB);
  return {
    // The only way in is the unix socket, whose folder only the server's user and root may enter.
    listen_addresses: '',
    unix_socket_permissions: '0700',
    max_connections: '250',

    shared_buffers: `${clamp(memoryMB / 8, 128, 2048)}MB`,
    effective_cache_size: `${clamp(memoryMB / 2, 256, 65536)}MB`,
    work_mem: `${clamp(memoryMB / 512, 4, 16)}MB`,
    maintenance_work_mem: `${clamp(memoryMB / 32, 64, 512)}MB`,

    // An OK to a client is a promise that outlives a power cut.
    fsync: 'on',
    full_page_writes: 'on',
    synchronous_commit: 'on',
    // The binaries are built without lz4 and zstd; pglz is always there.
    wal_compression: 'pglz',
    max_wal_size: '2GB',
    min_wal_size: '256MB',
    checkpoint_timeout: '15min',
    checkpoint_completion_target: '0.9',

    // Many short queries: compiling or spreading one of them costs more than it gives. Parallel queries would
    // also need more shared memory than the 64 MB of a container's /dev/shm.
    jit: 'off',
    max_parallel_workers_per_gather: '0',
    max_parallel_maintenance_workers: `${clamp(cores / 2, 0, 4)}`,
    io_workers: `${clamp(cores / 2, 2, 8)}`,
    random_page_cost: '1.1',

    autovacuum: 'on',
    autovacuum_naptime: '30s',
    autovacuum_max_workers: `${clamp(cores / 2, 2, 4)}`,

    timezone: 'UTC',
    log_timezone: 'UTC',
    lc_messages: 'C',
    log_destination: 'stderr',
    logging_collector: 'off',
    log_min_messages: 'warning',
    // A statement's text holds what people wrote; the node reports its own failed statements.
    log_min_error_statement: 'panic',
    log_checkpoints: 'off',
    // The SQLSTATE first: whoever reads the log matches it and never the words.
    log_line_prefix: '%e ',
    cluster_name: 'minato',
  };
}

/** What this process may use: a container's limit when there is one, else the machine's memory. */
export function machineSize(): { memoryBytes: number; cores: number } {
  // Without a limit the answer is 0, or the largest number that the kernel knows.
  const limit = process.constrainedMemory?.() ?? 0;
  const memoryBytes = limit > 0 && limit < totalmem() ? limit : totalmem();
  return { memoryBytes, cores: availableParallelism() };
}

function clamp(value: number, min: number, max: number): number {
  return Math.min(max, Math.max(min, Math.floor(value)));
}
