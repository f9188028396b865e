/** Why a peer could not be used. Its text is for the operator. */

export type PeerProblem =
  /** It cannot be connected to, or closed the connection. */
  | 'unreachable'
  /** It does not answer in time. */
  | 'silent'
  /** It refuses the request. */
  | 'refused'
  /** It breaks the protocol, or sends what was not asked for. */
  | 'misbehaved'
  /** It does not know negentropy. */
  | 'unsupported';

export class PeerFailure extends Error {
  constructor(
    readonly problem: PeerProblem,
    text: string,
  ) {
    super(text);
  }
}
