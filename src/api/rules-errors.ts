/**
 * All refusals of the HTTP API: code, status and message. A refusal is a value. The API turns it into
 * `{code, message, details}` in one place, the command line into a sentence. Pure.
 */

export const ERRORS = {
  INVALID_REQUEST: { status: 400, message: 'The request does not have the expected form.' },
  INVALID_CURSOR: {
    status: 400,
    message: 'This cursor is of another query, or what you may see has changed; begin again without it.',
  },
  INVALID_TOPIC: { status: 400, message: 'This is not a topic id.' },
  AUTH_REQUIRED: { status: 401, message: 'This needs a signed Authorization header (NIP-98).' },
  INVALID_AUTH: {
    status: 401,
    message: 'The signed event does not authenticate this request; see the details.',
  },
  REPLAYED_AUTH: { status: 401, message: 'This signed event was used before; sign a new one.' },
  INVALID_SIGNATURE: { status: 401, message: 'The signature of this call is not valid.' },
  INVALID_TOKEN: { status: 401, message: 'This token is unknown, revoked or expired; sign in again.' },
  INVALID_SESSION: {
    status: 401,
    message: 'This session is unknown, ended or expired; sign in again.',
  },
  INVALID_LINK: { status: 401, message: 'This link is unknown, used or expired; make a new one.' },
  QUOTA_EXCEEDED: { status: 402, message: 'The plan does not allow more of this.' },
  ADDRESS_BLOCKED: { status: 403, message: 'The operator has blocked this address.' },
  ACCOUNT_DISABLED: { status: 403, message: 'The operator has disabled this account.' },
  OPERATORS_ONLY: { status: 403, message: 'Only an operator of this community may do this.' },
  CSRF_REQUIRED: {
    status: 403,
    message: 'A change with a session cookie needs the X-CSRF-Token of that session.',
  },
  TOPIC_BLOCKED: { status: 403, message: 'The operator does not allow this topic.' },
  TOPIC_NOT_ENABLED: { status: 403, message: 'This topic is not carried here.' },
  SUBSCRIPTION_REQUIRED: { status: 403, message: 'This topic needs a subscription, and you have none.' },
  NOT_FOUND: { status: 404, message: 'Not found.' },
  COMMUNITY_NOT_FOUND: { status: 404, message: 'Community not found.' },
  ALREADY_SUBSCRIBED: { status: 409, message: 'You are already subscribed to this topic.' },
  REQUEST_PENDING: { status: 409, message: 'You have already requested this topic; the request is pending.' },
  STATUS_CONFLICT: { status: 409, message: 'This is not possible in the current status.' },
  TOPIC_IN_USE: {
    status: 409,
    message: 'Members are subscribed to this topic; to stop it anyway, block it.',
  },
  TOPIC_EXISTS: { status: 409, message: 'This topic already exists.' },
  COMMUNITY_EXISTS: { status: 409, message: 'A community with this name or host already exists.' },
  VERSION_MISMATCH: { status: 409, message: 'Somebody has changed this meanwhile; read it again.' },
  OWN_ADDRESS: { status: 409, message: 'This network contains your own address.' },
  FIXED_OPERATOR: { status: 409, message: 'This operator is set by MINATO_ADMIN_PUBKEYS.' },
  POLICY_PUBLISHED: {
    status: 409,
    message: 'A published version cannot be changed; create a new version.',
  },
  POLICY_EXISTS: { status: 409, message: 'This version already exists.' },
  POLICY_NOT_CURRENT: { status: 409, message: 'Only the current version can be agreed to.' },
  BLOCK_LIMIT_REACHED: { status: 409, message: 'The maximum number of these blocks is reached.' },
  RULE_NOT_TRIED: {
    status: 409,
    message: 'Run a trial of this rule in its current form before you enable it.',
  },
  RULE_STEPS_EXCEEDED: {
    status: 409,
    message:
      'The patterns of all enabled rules together would take too many steps; simplify or disable some.',
  },
  RULE_EXISTS: { status: 409, message: 'A rule with this name already exists.' },
  RULE_LIMIT_REACHED: { status: 409, message: 'The maximum number of rules is reached.' },
  BATCH_LIMIT_REACHED: { status: 409, message: 'The maximum number of running batches is reached.' },
  NOT_DONE: { status: 409, message: 'This had no effect; see the outcome.' },
  NAME_TAKEN: { status: 409, message: 'Another member has this name.' },
  PLAN_IN_USE: { status: 409, message: 'Members have this plan; give them another plan first.' },
  PLAN_EXISTS: { status: 409, message: 'A plan with this name already exists.' },
  NOT_READY: { status: 409, message: 'This is not ready yet.' },
  REPLAY_OUT_OF_REACH: {
    status: 409,
    message: 'A replay can only move back, at most to the oldest row of the outbox; otherwise rebuild.',
  },
  FOLLOWER_LIMIT_REACHED: { status: 409, message: 'The maximum number of followers is reached.' },
  OFFSET_OUT_OF_RANGE: {
    status: 409,
    message: 'An acknowledged offset can only grow, at most to the head of the outbox.',
  },
  INVALID_INVITE: { status: 409, message: 'This invite is unknown, used, revoked or expired.' },
  BEING_ERASED: {
    status: 409,
    message: 'This key is being erased here. Nothing of it is accepted until the erasure is complete.',
  },
  ACCOUNT_DELETED: { status: 410, message: 'This account has been deleted.' },
  PAYLOAD_TOO_LARGE: { status: 413, message: 'The body is too large.' },
  UNSUPPORTED_MEDIA_TYPE: { status: 415, message: 'The body must be application/json.' },
  OUTBOX_BEHIND: {
    status: 410,
    message: 'The outbox no longer has these rows; read the view again and follow from its offset.',
  },
  CURSOR_EXPIRED: {
    status: 410,
    message: 'Changes since this cursor are no longer kept; begin again without it.',
  },
  EXPIRED: { status: 410, message: 'This has expired; request it again.' },
  CONSENT_REQUIRED: { status: 428, message: 'Agree to the current terms first.' },
  RATE_LIMITED: { status: 429, message: 'Too many requests; wait before the next one.' },
  PENDING_SUBSCRIPTION_REQUEST_LIMIT_REACHED: {
    status: 429,
    message: 'Too many of your requests are pending; wait, or cancel one.',
  },
  TOPIC_LIMIT_REACHED: { status: 429, message: 'The maximum number of topics of this node is reached.' },
  SEARCH_NOT_READY: {
    status: 503,
    message: 'The search index is still being built; try again later.',
  },
  UNAVAILABLE: { status: 503, message: 'A part of this node does not answer; try again in a few seconds.' },
  INTERNAL: { status: 500, message: 'An internal error occurred; it has been logged.' },
} as const;

export type ErrorCode = keyof typeof ERRORS;

/** Why something was refused; `details` are for programs. */
export interface Denial {
  readonly denied: ErrorCode;
  readonly details?: Readonly<Record<string, unknown>>;
}

export function denial(denied: ErrorCode, details?: Readonly<Record<string, unknown>>): Denial {
  return details === undefined ? { denied } : { denied, details };
}

const SOUGHT_CHARS_MAX = 200;

/**
 * The message for people. That of NOT_FOUND says what was looked for: from the details, or `sought`. That of
 * a missing role names it.
 */
export function messageOf({ denied, details = {} }: Denial, sought: object = {}): string {
  const { message } = ERRORS[denied];
  const { role } = details;
  if (denied === 'OPERATORS_ONLY' && typeof role === 'string' && role !== 'operator')
    return `This needs a role in this community: ${role} or higher.`;
  if (denied !== 'NOT_FOUND') return message;
  const named = Object.entries(Object.keys(details).length > 0 ? details : sought)
    .filter(([, value]) => typeof value === 'string' || typeof value === 'number')
    .map(([name, value]) => `${name.replaceAll('_', ' ')} ${value}`);
  return named.length === 0 ? message : `Not found: ${named.join(', ').slice(0, SOUGHT_CHARS_MAX)}.`;
}

export function isDenial(value: unknown): value is Denial {
  return typeof value === 'object' && value !== null && 'denied' in value;
}
