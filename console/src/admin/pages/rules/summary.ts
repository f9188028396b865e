/** Conditions in one line. */
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { shortKey } from '../../../shared/keys.js';
import type { RuleConditions } from './types.js';

const SHOWN = 4;

function listed(values: readonly string[]): string {
  const shown = values.slice(0, SHOWN).join(', ');
  return values.length > SHOWN ? `${shown} … (+${number(values.length - SHOWN)})` : shown;
}

export function useSummary(): (conditions: Readonly<Record<string, unknown>>) => string {
  const t = useT();
  return (given) => {
    const { words, patterns, kinds, topics, authors, tags, rate } = given as RuleConditions;
    const search = typeof given['search'] === 'string' ? given['search'] : undefined;
    const parts = [
      search && `${t('rules:search')}: ${search}`,
      words && `${t('rules:words')}: ${listed(words)}`,
      patterns && `${t('rules:patterns')}: ${listed(patterns)}`,
      topics && `${t('rules:topics')}: ${listed(topics)}`,
      kinds && `${t('rules:kinds')}: ${listed(kinds.map(String))}`,
      authors && `${t('rules:authors')}: ${listed(authors.map(shortKey))}`,
      tags && `${t('rules:tags')}: ${listed(tags.map(({ name }) => name))}`,
      rate && t('rules:rateIs', { n: number(rate.count), seconds: number(rate.seconds) }),
    ];
    return parts.filter((part) => part !== undefined).join(' · ');
  };
}
