/** What a page shows while it loads, when it failed, and when there is nothing. */
import { Alert, Button, Center, Loader, Paper, Stack, Text, ThemeIcon, Title } from '@mantine/core';
import { IconAlertTriangle, IconInbox } from '@tabler/icons-react';
import type { ReactNode } from 'react';
import { useT } from '../i18n.js';
import { messageOf } from '../messages.js';

export function Loading() {
  const t = useT();
  return (
    <Center py="xl" role="status" aria-label={t('shared:loading')} data-loading>
      <Loader type="dots" />
    </Center>
  );
}

export function Failure({ error, retry }: { readonly error: unknown; readonly retry?: () => void }) {
  const t = useT();
  const { title, text } = messageOf(error);
  return (
    <Alert color="red" variant="light" icon={<IconAlertTriangle size={20} />} title={title} role="alert">
      <Stack gap="sm" align="flex-start">
        <Text size="sm" className="text">
          {text}
        </Text>
        {retry && (
          <Button size="xs" variant="default" onClick={retry}>
            {t('shared:retry')}
          </Button>
        )}
      </Stack>
    </Alert>
  );
}

interface EmptyProps {
  readonly title: string;
  readonly children?: ReactNode;
  readonly action?: ReactNode;
  readonly icon?: ReactNode;
}

/** Says why there is nothing, and what one can do. */
export function Empty({ title, children, action, icon = <IconInbox size={26} /> }: EmptyProps) {
  return (
    <Paper withBorder p="xl">
      <Stack align="center" gap="xs">
        <ThemeIcon size={48} radius="xl" variant="light">
          {icon}
        </ThemeIcon>
        <Title order={2} size="h4" ta="center">
          {title}
        </Title>
        {children && (
          <Text c="dimmed" size="sm" ta="center" maw={480}>
            {children}
          </Text>
        )}
        {action}
      </Stack>
    </Paper>
  );
}
