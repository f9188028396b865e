/** The one place where a refusal or a failure becomes an HTTP answer: `{code, message, details}`. */
import type { FastifyError, FastifyReply } from 'fastify';
import { hasZodFastifySchemaValidationErrors } from 'fastify-type-provider-zod';
import { type Denial, denial, ERRORS, type ErrorCode } from '../core/errors.js';
import { isOutageCode } from '../core/outage.js';
import { isNoAnswer } from '../in-time.js';
import type { Log } from '../log.js';

/** A part of the node that does not answer is tried again about so often. */
const RETRY_AFTER_SECONDS = 5;

export function refuse(reply: FastifyReply, { denied, details = {} }: Denial): FastifyReply {
  const { status, message } = ERRORS[denied];
  if (status === 401) reply.header('www-authenticate', schemesOf(denied));
  const retryAfter =
    details.retry_after_seconds ?? (denied === 'UNAVAILABLE' ? RETRY_AFTER_SECONDS : undefined);
  if (typeof retryAfter === 'number') reply.header('retry-after', String(retryAfter));
  // As text: a refusal must reach the client even where the route forgot to name it.
  return reply
    .code(status)
    .type('application/json; charset=utf-8')
    .send(JSON.stringify({ code: denied, message, details }));
}

/** How one may prove who asks: by NIP-98 or a token of this node; a provider's call by its own signature. */
function schemesOf(denied: ErrorCode): string {
  return denied === 'INVALID_SIGNATURE' ? 'Minato-Signature' : 'Nostr, Bearer';
}

/** The database does not answer, is going down, or took longer than a request may take. */
export const isUnavailable = (error: unknown): boolean =>
  isNoAnswer(error) || isOutageCode((error as { code?: unknown } | undefined)?.code);

/** SQLSTATE of the trigger refuse_erased. */
const REFUSED_AS_ERASED = 'MN001';

/**
 * What fastify threw: the client gets its own mistake explained; ours is logged, and answered without its
 * inner words.
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
    log.warn({ error: String(error) }, 'a request of the API was not answered: the database is away');
    return denial('UNAVAILABLE');
  }
  const { statusCode = 500 } = error;
  if (statusCode >= 400 && statusCode < 500) return denial('INVALID_REQUEST');
  log.error({ error: error.stack ?? String(error) }, 'a request of the API failed');
  return denial('INTERNAL');
}
