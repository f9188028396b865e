/**
 * The webhook for a payment provider: a signed call that sets the plan of a member. The signature covers the
 * time and the bytes of the body, so a call can neither be changed nor replayed later. Each event is carried
 * out once.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Knock, type Route, route } from '../api/contract.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { milliseconds, plainText, pubkey } from '../api/schemas.js';
import { applyPlanEvent } from './plans.sql.js';
import { planId } from './schemas.js';
import { readWebhookSecret } from './webhook-secrets.sql.js';

const HEADER = 'x-minato-signature';
const FRESH_MS = 300_000;

export function webhookRoutes({ pool }: { readonly pool: Pool }): Route[] {
  const event = {
    event_id: plainText(200)
      .min(1)
      .describe("The provider's id of this event; each event is carried out once"),
    pubkey,
    plan_id: planId,
  };
  return [
    route({
      method: 'POST',
      url: '/webhooks/plan',
      summary: "Set a member's plan (for payment providers)",
      description:
        'Needs the header `X-Minato-Signature: t=<unix seconds>,v1=<hex>`, where v1 is the HMAC-SHA256 of ' +
        "the time, a dot and the bytes of the body, with the community's secret. The time must be within " +
        '5 minutes of now. An event that is sent again gets the same response and changes nothing.',
      tags: ['webhooks'],
      who: 'public',
      guard: (knock) => refuseCall(pool, knock),
      body: z.strictObject({
        ...event,
        until: milliseconds
          .min(0)
          .nullable()
          .optional()
          .describe('When the plan ends and "free" follows; default: never'),
      }),
      response: z.strictObject({ ...event, until: milliseconds.nullable() }),
      errors: ['INVALID_SIGNATURE', 'NOT_FOUND', 'ACCOUNT_DELETED', 'BEING_ERASED'],
      handler: async ({ community, body, now }) => {
        const wanted = {
          community: community.id,
          eventId: body.event_id,
          pubkey: body.pubkey,
          planId: body.plan_id,
          until: body.until,
        };
        const done = await applyPlanEvent(pool, wanted, now);
        if (isDenial(done)) return done;
        return { event_id: done.eventId, pubkey: done.pubkey, plan_id: done.planId, until: done.until };
      },
    }),
  ];
}

async function refuseCall(
  pool: Pool,
  { community, headers, bytes, now }: Knock,
): Promise<Denial | undefined> {
  const [, time, signature] =
    /^t=(\d{1,12}),v1=([0-9a-f]{64})$/.exec(headers[HEADER]?.toString() ?? '') ?? [];
  if (time === undefined || signature === undefined) return unsigned('header');
  if (Math.abs(now - Number(time) * 1_000) > FRESH_MS) return unsigned('time');
  const held = await readWebhookSecret(pool, community.id);
  // A community without a secret gives the same answer as one with another secret.
  if (held === undefined) return unsigned('signature');
  const right = createHmac('sha256', held.secret).update(`${time}.`).update(bytes).digest();
  return timingSafeEqual(right, Buffer.from(signature, 'hex')) ? undefined : unsigned('signature');
}

function unsigned(reason: 'header' | 'time' | 'signature'): Denial {
  return denial('INVALID_SIGNATURE', { reason });
}
