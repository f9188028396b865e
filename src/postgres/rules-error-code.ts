/**
 * The code of an error of PostgreSQL, Node.js or a driver, and the SQLSTATEs that this program handles. Pure.
 */

export const SQLSTATE = {
  /** Also from a pooler that does not know a setting of a session. */
  protocolViolation: '08P01',
  uniqueViolation: '23505',
  /** Also for a row without a partition. */
  checkViolation: '23514',
  failedTransaction: '25P02',
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
