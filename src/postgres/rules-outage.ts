/** The error codes of an outage: the database or the network has failed, not the statement. Pure. */

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
