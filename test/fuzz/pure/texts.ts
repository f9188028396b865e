/** Texts that people write: words, searches, names of topics, patterns, names of events and keys. */
import { checkWord, WordMatcher } from '../../../src/blocks/rules-words.js';
import type { Dice } from '../../../src/demo/rules-dice.js';
import { pubkeyOf } from '../../../src/events/rules/public-key-text.js';
import { isRefusal } from '../../../src/events/rules/reply.js';
import { isStorable } from '../../../src/events/rules/text.js';
import { parseNamed } from '../../../src/life/event-name.js';
import { searchFor } from '../../../src/members/rules-profile.js';
import { conditionsSchema } from '../../../src/moderation/rules.js';
import { readTicket, writeTicket } from '../../../src/p2p/rules-ticket.js';
import { databaseUrlOf, socketOf, withoutPassword } from '../../../src/postgres/rules-database-url.js';
import { parseSearch, SEARCH_TERMS_MAX, toTsquery } from '../../../src/search/rules.js';
import { normaliseName, parseTopicId } from '../../../src/topics/rules-id.js';
import { oddText } from '../make/values.js';
import { must, type PureTarget } from '../target.js';

const matcher = new WordMatcher(['spam', 'free money', '日本', 'script']);

function checkNames(input: string): void {
  const name = normaliseName(input);
  if (!isRefusal(name)) must(normaliseName(name) === name, 'the normal form of a name is not stable');
  const parts = parseTopicId(input, 'kukuri');
  must(parts === undefined || isStorable(input), 'a topic id can be stored');
  const checked = checkWord(input);
  if ('word' in checked) {
    const again = checkWord(checked.word);
    must('word' in again && again.word === checked.word, 'the stored form of a word is not stable');
    must(new WordMatcher([checked.word]).matches(input), 'a blocked word is not found in itself');
  }
}

function checkDatabaseUrl(input: string): void {
  const read = databaseUrlOf(input, 'localhost');
  if ('problem' in read) return;
  socketOf(read.url);
  // Its other parts may have the same text: `postgres://:password@/:password@`.
  const { password, searchParams } = new URL(withoutPassword(read.url));
  must(password === '' && !searchParams.has('password'), 'a password is shown');
}

export const texts: PureTarget = {
  name: 'texts',
  corpus: ['texts'],
  make: (dice: Dice) => Array.from({ length: dice.between(1, 3) }, () => oddText(dice, 30)).join(' '),
  run: (input) => {
    checkNames(input);
    matcher.matches(input);
    const search = parseSearch(input);
    if (search !== undefined && !isRefusal(search)) {
      must(search.terms.length <= SEARCH_TERMS_MAX, 'a search has few terms');
      must(!toTsquery(search, undefined).includes('\u0000'), 'a query can be sent');
    }
    searchFor(input, pubkeyOf);
    parseNamed(input);
    conditionsSchema.safeParse({ patterns: [input], words: [input] });
    checkDatabaseUrl(input);
    const ticket = readTicket(input);
    if (ticket !== undefined)
      must(readTicket(writeTicket(ticket)) !== undefined, 'a ticket can be read again');
  },
};
