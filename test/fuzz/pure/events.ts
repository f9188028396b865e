/** Events: shape, serialization, and every rule that reads tags and content before an event is stored. */
import { settingsFrom } from '../../../src/communities/rules-settings.js';
import type { Dice } from '../../../src/demo/rules-dice.js';
import { deletionTargets, targetName } from '../../../src/events/rules/deletion.js';
import { type NostrEvent, parseEvent, powBits, serializeEvent } from '../../../src/events/rules/event.js';
import { expirationOf } from '../../../src/events/rules/expiration.js';
import { refuseArrival, refuseContent } from '../../../src/events/rules/policy.js';
import { isRefusal, type Refusal, words } from '../../../src/events/rules/reply.js';
import { vanishScope } from '../../../src/events/rules/vanish.js';
import { claimOf, membersIn, refuseMembership } from '../../../src/members/rules-joining.js';
import { profileIn } from '../../../src/members/rules-profile.js';
import { judgeArrival } from '../../../src/moderation/arrival/rules.js';
import { answerOf } from '../../../src/moderation/rules-match.js';
import { Texts } from '../../../src/moderation/rules-texts.js';
import { commentOf, reportedBy } from '../../../src/reports/rules.js';
import { toTsvector, wordsOf } from '../../../src/search/rules-words.js';
import { asMatched, impliedTopics } from '../../../src/topics/rules.js';
import { namedBy } from '../../../src/trust/rules.js';
import { makeEvent } from '../make/events.js';
import { compileArrivalRules } from '../make/rules.js';
import { must, type PureTarget } from '../target.js';
import { NOW } from './now.js';

const SETTINGS = settingsFrom(new Map([['topic.mode', 'open']]));
const RULES = compileArrivalRules();

const isWorded = (refused: Refusal | undefined) =>
  refused === undefined || /^[a-z-]+: ./.test(words(refused));

function checkRules(event: NostrEvent, payload: string): void {
  const topics = new Map();
  const refused = refuseArrival({
    event,
    bytes: payload.length,
    settings: SETTINGS,
    topics,
    nowSeconds: NOW,
  });
  must(isWorded(refused), 'a refusal has a prefix and a reason');
  const texts = new Texts(event, SETTINGS);
  must(isWorded(answerOf(refuseContent({ event, texts }))), 'a refusal has a prefix and a reason');
  answerOf(judgeArrival(event, { settings: SETTINGS, topics, rules: RULES }, texts));
  const matched = asMatched(event, impliedTopics(event, SETTINGS, topics));
  const vector = toTsvector(wordsOf(matched));
  must(!vector.includes('\u0000'), 'the words of an event can be stored');
}

function checkTags(event: NostrEvent): void {
  for (const target of deletionTargets(event)) targetName(target);
  const expiration = expirationOf(event);
  must(expiration === undefined || Number.isSafeInteger(expiration), 'an expiration is a whole number');
  must(['here', 'everywhere', 'elsewhere'].includes(vanishScope(event, ['ws://127.0.0.1'])), 'a known scope');
  must(powBits(event.id) >= 0 && powBits(event.id) <= 256, 'bits of work');
  must(reportedBy(event).length <= 20, 'a report names at most 20 targets');
  must(commentOf(event).length <= 2_000, 'a comment is bounded');
  must(namedBy(event).named.length <= 50, 'at most 50 contacts count');
  refuseMembership(event, NOW);
  claimOf(event);
  membersIn(event);
}

export const events: PureTarget = {
  name: 'events',
  corpus: ['events'],
  make: (dice: Dice) => JSON.stringify(makeEvent(dice, NOW)),
  run: (input) => {
    let json: unknown;
    try {
      json = JSON.parse(input);
    } catch {
      return;
    }
    const event = parseEvent(json);
    if (isRefusal(event)) return must(isWorded(event), 'a refusal has a prefix and a reason');
    const payload = serializeEvent(event);
    must(
      !/\p{Cc}/u.test(payload.replace(/[\u007f-\u009f]/g, '')),
      'what is served has no raw control character',
    );
    const again = parseEvent(JSON.parse(payload));
    must(!isRefusal(again) && serializeEvent(again) === payload, 'what is served is the same event');
    profileIn(payload);
    checkTags(event);
    checkRules(event, payload);
  },
};
