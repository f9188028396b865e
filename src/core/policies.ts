/**
 * The texts that members agree to (terms, privacy), pure: what a version and a language may be called, which language is
 * shown, and who has agreed to all that is current. One language is enough: a translation says the same.
 */
import type { Step } from './membership.js';
import { isStorable } from './text.js';

export const POLICY_TYPES = ['terms', 'privacy'] as const;
export const POLICY_STATUSES = ['draft', 'published', 'current'] as const;
export type PolicyType = (typeof POLICY_TYPES)[number];
export type PolicyStatus = (typeof POLICY_STATUSES)[number];
export type PolicyAction = 'publish' | 'make-current';

/** Nobody agrees to what may still change, so a draft is published first. */
export const POLICY_STEPS: Record<PolicyAction, Record<PolicyStatus, Step>> = {
  publish: { draft: 'do', published: 'done', current: 'done' },
  'make-current': { draft: 'conflict', published: 'do', current: 'done' },
};

/** As it stands in an address. */
export const POLICY_VERSION = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
export const TITLE_LENGTH_MAX = 200;
export const CONTENT_LENGTH_MAX = 200_000;
export const LOCALE_LENGTH_MAX = 35;
/** Languages of one version. */
export const LOCALES_MAX = 100;

export interface PolicyRef {
  readonly type: PolicyType;
  readonly version: string;
}

export const policyKey = ({ type, version }: PolicyRef): string => `${type}/${version}`;

/** A BCP 47 tag in its one spelling (`EN-us` → `en-US`); undefined when it is none. */
export function canonicalLocale(tag: string): string | undefined {
  if (tag.length > LOCALE_LENGTH_MAX) return undefined;
  try {
    return Intl.getCanonicalLocales(tag)[0];
  } catch {
    return undefined;
  }
}

/** The one that is asked for, else one of the same language, else the first. */
export function bestLocale(available: readonly string[], wanted: string | undefined): string | undefined {
  if (wanted === undefined) return available[0];
  const [language] = wanted.split('-');
  const isSameLanguage = (locale: string) => locale.split('-')[0] === language;
  return available.find((locale) => locale === wanted) ?? available.find(isSameLanguage) ?? available[0];
}

/** Why this cannot be a policy's text, as a sentence. */
export function findTextProblem(title: string, content: string): string | undefined {
  if (title.trim() === '' || title.length > TITLE_LENGTH_MAX) {
    return `a title has 1 to ${TITLE_LENGTH_MAX} characters`;
  }
  if (content.trim() === '' || content.length > CONTENT_LENGTH_MAX) {
    return `a text has 1 to ${CONTENT_LENGTH_MAX} characters`;
  }
  return isStorable([title, content]) ? undefined : 'a text holds neither NUL nor lone surrogates';
}

/** `agreed` holds the keys of what a member has agreed to and not withdrawn. Where nothing is current, nothing is asked. */
export function hasAgreed(current: readonly PolicyRef[], agreed: ReadonlySet<string>): boolean {
  return current.every((policy) => agreed.has(policyKey(policy)));
}
