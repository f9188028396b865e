/**
 * The rules of the texts that members agree to (terms, privacy), pure: valid names of versions and languages,
 * which language is shown, and who has agreed to everything that is current. Consent in one language is
 * enough.
 */

import { isStorable } from '../events/rules/text.js';
import type { Step } from '../members/rules.js';

export const POLICY_TYPES = ['terms', 'privacy'] as const;
export const POLICY_STATUSES = ['draft', 'published', 'current'] as const;
export type PolicyType = (typeof POLICY_TYPES)[number];
export type PolicyStatus = (typeof POLICY_STATUSES)[number];
export type PolicyAction = 'publish' | 'make-current';

/** Only a published version can become current, because a draft may still change. */
export const POLICY_STEPS: Record<PolicyAction, Record<PolicyStatus, Step>> = {
  publish: { draft: 'do', published: 'done', current: 'done' },
  'make-current': { draft: 'conflict', published: 'do', current: 'done' },
};

/** It is part of URLs. */
export const POLICY_VERSION = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
export const TITLE_LENGTH_MAX = 200;
export const CONTENT_LENGTH_MAX = 200_000;
export const LOCALE_LENGTH_MAX = 35;
/** Limit of languages per version. */
export const LOCALES_MAX = 100;

export interface PolicyRef {
  readonly type: PolicyType;
  readonly version: string;
}

export const policyKey = ({ type, version }: PolicyRef): string => `${type}/${version}`;

/** The canonical form of a BCP 47 tag (`EN-us` → `en-US`); undefined when it is not a tag. */
export function canonicalLocale(tag: string): string | undefined {
  if (tag.length > LOCALE_LENGTH_MAX) return undefined;
  try {
    return Intl.getCanonicalLocales(tag)[0];
  } catch {
    return undefined;
  }
}

/** The same tag, else one of the same language, else the first. */
export function bestLocale(available: readonly string[], wanted: string | undefined): string | undefined {
  if (wanted === undefined) return available[0];
  const [language] = wanted.split('-');
  const isSameLanguage = (locale: string) => locale.split('-')[0] === language;
  return available.find((locale) => locale === wanted) ?? available.find(isSameLanguage) ?? available[0];
}

/** Why a text is refused, as a sentence. */
export function findTextProblem(title: string, content: string): string | undefined {
  if (title.trim() === '' || title.length > TITLE_LENGTH_MAX) {
    return `a title must have 1 to ${TITLE_LENGTH_MAX} characters`;
  }
  if (content.trim() === '' || content.length > CONTENT_LENGTH_MAX) {
    return `a text must have 1 to ${CONTENT_LENGTH_MAX} characters`;
  }
  return isStorable([title, content]) ? undefined : 'a text must not contain NUL or lone surrogates';
}

/** `agreed` holds the keys of the consents that are in force. Without current policies the result is true. */
export function hasAgreed(current: readonly PolicyRef[], agreed: ReadonlySet<string>): boolean {
  return current.every((policy) => agreed.has(policyKey(policy)));
}
