/**
 * Reports of the demo, and what moderators decided about them, with the functions that the API uses. Doing it
 * again changes nothing: an action that a case has already is not taken again.
 */

import { labelSchema } from '../labels/rules.js';
import { appeal } from '../moderation/appeals.sql.js';
import { act, type Case, listActions, listCases } from '../moderation/cases.sql.js';
import { carryOut } from '../moderation/pending-actions.js';
import { listReports } from '../reports/reports.sql.js';
import { addWeighedReport } from '../trust/grounds.sql.js';
import { actorOf } from './fill-town.js';
import { checkInterrupt, type Filling, unless } from './filling.js';
import type { Deciding, Reporting } from './rules-cases.js';
import { HOUR } from './rules-drafts.js';

const PAGE = { limit: 200 };
const POLICY = 'Terms of the harbour';

export async function fillCases(filling: Filling): Promise<void> {
  for (const reporting of filling.story.reportings) await report(filling, reporting);
  for (const deciding of filling.story.decidings) await decide(filling, deciding);
}

async function report(
  filling: Filling,
  { place, at, event, pubkey, reason, comment }: Reporting,
): Promise<void> {
  checkInterrupt(filling);
  const { pool, store, community, story, tally } = filling;
  const { id } = community();
  const reporter = story.people[place]!.pubkey;
  const about = { community: id, pubkey: reporter, targetEvent: event, targetPubkey: pubkey };
  const isNew = unless(await listReports(pool, about, PAGE), [])!.items.length === 0;
  if (isNew)
    unless(
      await addWeighedReport(pool, store.stored, { ...about, reason, comment }, community(), at * 1_000),
      [],
    );
  tally.note('reports', isNew);
}

async function decide(filling: Filling, deciding: Deciding): Promise<void> {
  checkInterrupt(filling);
  const { pool, store, community, tally, fixed, now } = filling;
  const { id, settings } = community();
  const { event, author } = deciding;
  const found = await caseAbout(filling, deciding);
  const taken = new Set((await listActions(pool, found, id)).map(({ action }) => action));
  const at = deciding.at === undefined ? now() : deciding.at * 1_000;
  for (const { action, note, label } of deciding.actions) {
    const isNew = !taken.has(action);
    tally.note('decisions', isNew);
    if (!isNew) continue;
    const acting = { community: id, caseId: found.caseId, action, note, actor: actorOf(filling) };
    const put = label === undefined ? {} : { label: labelSchema.parse({ label, policy: POLICY }) };
    const privateKinds = settings['auth.privateKinds'];
    unless(await act(pool, { ...acting, ...put, privateKinds, events: store.stored }, { fixed }, at), []);
  }
  await carryOut({ store, pool, now }, { community: id, id: event });
  if (deciding.appeal === undefined) return;
  const said = { community: id, pubkey: author, event, text: deciding.appeal };
  const made = unless(await appeal(pool, store.stored, said, at + 20 * HOUR * 1_000), ['STATUS_CONFLICT']);
  tally.note('appeals', made !== undefined);
}

async function caseAbout({ pool, community }: Filling, { event, author }: Deciding): Promise<Case> {
  const { items } = unless(await listCases(pool, { community: community().id, author }, PAGE), [])!;
  const found = items.find(({ targetEvent }) => targetEvent === event);
  if (found === undefined) throw new Error(`there is no case about the event ${event} of the demo`);
  return found;
}
