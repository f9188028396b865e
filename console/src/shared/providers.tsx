/** What every page stands in: theme, queries, notifications. */
import { MantineProvider } from '@mantine/core';
import { Notifications, notifications } from '@mantine/notifications';
import { MutationCache, QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { setNonce } from 'get-nonce';
import i18next from 'i18next';
import type { ReactNode } from 'react';
import { ApiError } from './api.js';
import { messageOf } from './messages.js';
import { theme } from './theme.js';
import '@mantine/core/styles.css';
import '@mantine/notifications/styles.css';
import './page.css';

const nonce = document.querySelector<HTMLMetaElement>('meta[name=csp-nonce]')?.content ?? '';
setNonce(nonce);

const RETRIES = 2;

const client = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      // A refusal stays a refusal; only an outage is tried again.
      retry: (count, error) => count < RETRIES && !(error instanceof ApiError && error.status < 500),
    },
  },
  mutationCache: new MutationCache({
    onError: (error, _input, _context, mutation) => {
      if (mutation.meta?.quiet === true) return;
      // The page shows the terms.
      if (error instanceof ApiError && error.code === 'CONSENT_REQUIRED') return;
      const { title, text } = messageOf(error);
      notifications.show({ color: 'red', title, message: text, closeButtonProps: closing() });
    },
  }),
});

/** The button that closes a notification has a name for screen readers. */
const closing = () => ({ 'aria-label': i18next.t('shared:close') });

export function Providers({ children }: { readonly children: ReactNode }) {
  return (
    <MantineProvider theme={theme} defaultColorScheme="auto" getStyleNonce={() => nonce}>
      <QueryClientProvider client={client}>
        <Notifications position="bottom-right" containerWidth={420} />
        {children}
      </QueryClientProvider>
    </MantineProvider>
  );
}

export function notifyDone(message: string): void {
  notifications.show({ color: 'teal', message, closeButtonProps: closing() });
}
