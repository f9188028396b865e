/** The heading of a page: its name, one sentence about it, and its main actions. */
import { Group, Stack, Text, Title } from '@mantine/core';
import { type ReactNode, useEffect } from 'react';

interface PageHeadProps {
  readonly title: string;
  readonly about?: ReactNode;
  readonly children?: ReactNode;
}

export function PageHead({ title, about, children }: PageHeadProps) {
  useEffect(() => {
    document.title = `${title} · Minato`;
  }, [title]);
  return (
    <Group justify="space-between" align="flex-start" mb="lg" gap="sm">
      <Stack gap={2} maw={720}>
        <Title order={1} size="h2">
          {title}
        </Title>
        {about && (
          <Text c="dimmed" size="sm" component="div">
            {about}
          </Text>
        )}
      </Stack>
      {children && (
        <Group gap="xs" className="no-print">
          {children}
        </Group>
      )}
    </Group>
  );
}
