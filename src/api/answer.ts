/** The only place that turns a refusal or a failure into an HTTP answer: `{code, message, details}`. */
import type { FastifyError, FastifyReply } from 'fastify';
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import { isNoAnswer } from '../limits/in-time.js';
import { type Log, RareLine } from '../node/log.js';
import { errorCode, isOutageCode } from '../postgres/rules-error-code.js';
import { type Denial, denial, ERRORS, type ErrorCode, messageOf } from './rules-errors.js';

/** Retry-After of a refusal while a part of the node does not answer. */
const RETRY_AFTER_SECONDS = 5;

/** `sought`: the parameters of the route, for the message of a NOT_FOUND. */
export function refuse(reply: FastifyReply, refused: Denial, sought: object = {}): FastifyReply {
  const { denied, details = {} } = refused;
  const { status } = ERRORS[denied];
  const message = messageOf(refused, sought);
  if (status === 401) reply.header('www-authenticate', schemesOf(denied));
  const retryAfter =
    details.retry_after_seconds ?? (denied === 'UNAVAILABLE' ? RETRY_AFTER_SECONDS : undefined);
  if (typeof retryAfter === 'number') reply.header('retry-after', String(retryAfter));
  // As text, so that the client gets a refusal that the route has not declared.
  return reply
    .code(status)
    .type('application/json; charset=utf-8')
    .send(JSON.stringify({ code: denied, message, details }));
}

/**
 * The accepted schemes: NIP-98 or a token of this node; for a call of a payment provider its own signature.
 */
function schemesOf(denied: ErrorCode): string {
  return denied === 'INVALID_SIGNATURE' ? 'Minato-Signature' : 'Nostr, Bearer';
}

/** The database does not answer, is shutting down, or took longer than a request may take. */
export const isUnavailable = (error: unknown): boolean => isNoAnswer(error) || isOutageCode(errorCode(error));

/** SQLSTATE of the trigger refuse_erased. */
const REFUSED_AS_ERASED = 'MN001';

/**
 * Converts what fastify threw. An error of the client is explained to it. An error of ours is logged, and the
 * client gets no details.
 */
export function denialOf(error: FastifyError, log: Log): Denial {
  if (hasZodFastifySchemaValidationErrors(error)) {
    const problems = error.validation.map(({ instancePath, message }) => ({
      path: `${error.validationContext ?? 'body'}${instancePath === '/' ? '' : instancePath}`,
      message: message ?? '',
    }));
    return denial('INVALID_REQUEST', { problems });
  }
  if (error.code === REFUSED_AS_ERASED) return denial('BEING_ERASED');
  if (error.code === 'FST_ERR_CTP_BODY_TOO_LARGE') return denial('PAYLOAD_TOO_LARGE');
  if (error.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE') return denial('UNSUPPORTED_MEDIA_TYPE');
  if (isUnavailable(error)) {
    outageLineOf(log).add(String(error));
    return denial('UNAVAILABLE');
  }
  const { statusCode = 500 } = error;
  if (statusCode >= 400 && statusCode < 500) return denial('INVALID_REQUEST');
  log.error({ error: error.stack ?? String(error) }, 'a request to the API failed');
  return denial('INTERNAL');
}

const outageLines = new WeakMap<Log, RareLine<string>>();

/** During an outage every request fails. */
function outageLineOf(log: Log): RareLine<string> {
  const known = outageLines.get(log);
  if (known !== undefined) return known;
  const line = new RareLine<string>((error, others) =>
    log.warn({ error, others }, 'a request to the API failed: the database does not answer'),
  );
  outageLines.set(log, line);
  return line;
}
