/** What a person reads when something fails: what happened, and what to do. */
import i18next from 'i18next';
import { ApiError } from './api.js';
import './texts.js';

export function messageOf(error: unknown): { readonly title: string; readonly text: string } {
  const title = i18next.t('shared:failed');
  if (!(error instanceof ApiError)) {
    const isOffline = error instanceof TypeError;
    return { title, text: i18next.t(isOffline ? 'shared:offline' : 'shared:unknown') };
  }
  const wait =
    error.retryAfter === undefined
      ? ''
      : ` ${i18next.t('shared:waitSeconds', { seconds: error.retryAfter })}`;
  return { title, text: `${error.message}${wait} (${error.code})` };
}
