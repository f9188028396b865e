/**
 * The code of an error of PostgreSQL, Node.js or a driver, the SQLSTATEs that this program handles, and
 * the codes of an outage: the database or the network has failed, not the statement. Pure.
 */

export const SQLSTATE = {
  /** Also from a pooler that does not know a setting of a session. */
  protocolViolation: '08P01',
  uniqueViolation: '23505',
  /** Also for a row without a partition. */
  checkViolation: '23514',
  failedTransaction: '25P02',
  deadlock: '40P01',
  undefinedTable: '42P01',
  insufficientPrivilege: '42501',
  lockNotAvailable: '55P03',
  /** A statement was cancelled or reached its time-out. */
  queryCanceled: '57014',
} as const;

export function errorCode(error: unknown): string | undefined {
  const code = (error as { readonly code?: unknown } | null | undefined)?.code;
  return typeof code === 'string' ? code : undefined;
}

/** Network failures, as Node.js calls them. */
const NETWORK = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EAI_AGAIN',
]);
/**
 * Connection (08), no resources (53), shutdown and cancelling (57), system error (58), serialization and
 * deadlock (40), a lock that was not available in time, a transaction that was idle or open for too long, and
 * a read-only server.
 */
const OUTAGES = /^(08|53|57|58|40)|^(55P03|25P03|25P04|25006)$/;

export function isOutageCode(code: unknown): boolean {
  return typeof code === 'string' && (NETWORK.has(code) || OUTAGES.test(code));
}
