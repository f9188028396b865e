/**
 * Every refusal of the HTTP API: its code, its status and what it says. A refusal is a value; the API turns it into
 * `{code, message, details}` in one place, and the command line into a sentence.
 */

export const ERRORS = {
  INVALID_REQUEST: { status: 400, message: 'The request does not have the expected form.' },
  INVALID_TOPIC: { status: 400, message: 'This is not a topic id.' },
  AUTH_REQUIRED: { status: 401, message: 'This needs a signed Authorization header (NIP-98).' },
  INVALID_AUTH: { status: 401, message: 'The signed event does not prove who asks; the details say why.' },
  REPLAYED_AUTH: { status: 401, message: 'This signed event was used before; sign a new one.' },
  INVALID_SIGNATURE: { status: 401, message: 'The signature of this call does not hold.' },
  INVALID_TOKEN: { status: 401, message: 'This token is unknown, revoked or past its time; sign in again.' },
  INVALID_SESSION: {
    status: 401,
    message: 'This session is unknown, ended or past its time; sign in again.',
  },
  QUOTA_EXCEEDED: { status: 402, message: 'The plan does not allow more of this.' },
  ADDRESS_BLOCKED: { status: 403, message: 'The operator has blocked this address.' },
  ACCOUNT_DISABLED: { status: 403, message: 'The operator has disabled this account.' },
  OPERATORS_ONLY: { status: 403, message: 'Only an operator of this community may do this.' },
  CSRF_REQUIRED: {
    status: 403,
    message: 'A change that is asked for with a cookie needs the X-CSRF-Token of its session.',
  },
  TOPIC_BLOCKED: { status: 403, message: 'The operator does not allow this topic.' },
  TOPIC_NOT_ENABLED: { status: 403, message: 'This topic is not carried here.' },
  SUBSCRIPTION_REQUIRED: { status: 403, message: 'This topic needs a subscription, and you have none.' },
  NOT_FOUND: { status: 404, message: 'There is no such thing here.' },
  COMMUNITY_NOT_FOUND: { status: 404, message: 'There is no such community.' },
  ALREADY_SUBSCRIBED: { status: 409, message: 'You are subscribed to this topic already.' },
  REQUEST_PENDING: { status: 409, message: 'You have asked for this topic already; the request is waiting.' },
  STATUS_CONFLICT: { status: 409, message: 'This is not possible in its present status.' },
  TOPIC_IN_USE: { status: 409, message: 'Members subscribe to this topic; block it to stop it anyway.' },
  TOPIC_EXISTS: { status: 409, message: 'This topic is set up already.' },
  VERSION_MISMATCH: { status: 409, message: 'Somebody changed this meanwhile; read it again.' },
  OWN_ADDRESS: { status: 409, message: 'This network holds the address that you call from.' },
  FIXED_OPERATOR: { status: 409, message: 'This operator is set by MINATO_ADMIN_PUBKEYS.' },
  POLICY_PUBLISHED: {
    status: 409,
    message: 'What is published is not changed any more; make a new version.',
  },
  POLICY_EXISTS: { status: 409, message: 'There is such a version already.' },
  POLICY_NOT_CURRENT: { status: 409, message: 'Only the current version can be agreed to.' },
  BLOCK_LIMIT_REACHED: { status: 409, message: 'There are as many of these blocks as there can be.' },
  RULE_NOT_TRIED: { status: 409, message: 'Try this rule as it is now before it is enabled.' },
  RULE_STEPS_EXCEEDED: {
    status: 409,
    message:
      'The patterns of the enabled rules would take too many steps together; simplify or disable some.',
  },
  RULE_EXISTS: { status: 409, message: 'There is a rule of this name already.' },
  RULE_LIMIT_REACHED: { status: 409, message: 'There are as many rules as there can be.' },
  BATCH_LIMIT_REACHED: { status: 409, message: 'As many batches are under way as there can be.' },
  NOT_DONE: { status: 409, message: 'This had no effect; the outcome says why.' },
  NAME_TAKEN: { status: 409, message: 'Another member has this name.' },
  PLAN_IN_USE: { status: 409, message: 'Members are on this plan; give them another first.' },
  PLAN_EXISTS: { status: 409, message: 'There is a plan of this name already.' },
  NOT_READY: { status: 409, message: 'This is not ready yet.' },
  REPLAY_OUT_OF_REACH: {
    status: 409,
    message: 'A replay goes back, and no further than the outbox reaches; a rebuild begins anew.',
  },
  FOLLOWER_LIMIT_REACHED: { status: 409, message: 'There are as many followers as there can be.' },
  OFFSET_OUT_OF_RANGE: {
    status: 409,
    message: 'An acknowledged offset only grows, and not beyond the head of the outbox.',
  },
  INVALID_INVITE: { status: 409, message: 'This invite is unknown, used, revoked or past its time.' },
  BEING_ERASED: {
    status: 409,
    message: 'This key is being erased here. Nothing of it is taken in until that is done.',
  },
  ACCOUNT_DELETED: { status: 410, message: 'This account has been deleted.' },
  PAYLOAD_TOO_LARGE: { status: 413, message: 'The body is too large.' },
  UNSUPPORTED_MEDIA_TYPE: { status: 415, message: 'The body must be application/json.' },
  OUTBOX_BEHIND: {
    status: 410,
    message: 'The outbox does not reach back so far; read the view anew and follow from its number.',
  },
  EXPIRED: { status: 410, message: 'This was kept for a time, which is over; ask again.' },
  CONSENT_REQUIRED: { status: 428, message: 'Agree to the current terms first.' },
  RATE_LIMITED: { status: 429, message: 'Too many requests; wait before the next.' },
  PENDING_SUBSCRIPTION_REQUEST_LIMIT_REACHED: {
    status: 429,
    message: 'Too many of your requests wait for review; wait or cancel one.',
  },
  TOPIC_LIMIT_REACHED: { status: 429, message: 'This node carries as many topics as it can.' },
  SEARCH_NOT_READY: {
    status: 503,
    message: 'What can be searched is still being gathered; try again later.',
  },
  UNAVAILABLE: { status: 503, message: 'A part of this node does not answer; try again in a moment.' },
  INTERNAL: { status: 500, message: 'Something failed here; it has been logged.' },
} as const;

export type ErrorCode = keyof typeof ERRORS;

/** Why something was not done; `details` help a program to go on. */
export interface Denial {
  readonly denied: ErrorCode;
  readonly details?: Readonly<Record<string, unknown>>;
}

export function denial(denied: ErrorCode, details?: Readonly<Record<string, unknown>>): Denial {
  return details === undefined ? { denied } : { denied, details };
}

export function isDenial(value: unknown): value is Denial {
  return typeof value === 'object' && value !== null && 'denied' in value;
}
