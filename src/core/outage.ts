/** Which codes of an error mean that the database, or the way to it, is at fault, and not what was asked. */

/** Failures of the network, as Node calls them. */
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
 * Connection (08), out of room (53), shutdown and cancelling (57), the system around it (58), serialization
 * and deadlock (40), a lock that did not come, a transaction that was idle for too long, and a server that
 * only reads.
 */
const OUTAGES = /^(08|53|57|58|40)|^(55P03|25P03|25P04|25006)$/;

export function isOutageCode(code: unknown): boolean {
  return typeof code === 'string' && (NETWORK.has(code) || OUTAGES.test(code));
}
