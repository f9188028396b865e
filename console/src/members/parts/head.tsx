/** The heading of a page; the title of the tab names the community too. */
import { Group, Stack, Text, Title } from '@mantine/core';
import { type ReactNode, useEffect } from 'react';
import { useAbout } from '../community.js';

interface HeadProps {
  readonly title: string;
  readonly about?: ReactNode;
  readonly children?: ReactNode;
}

export function Head({ title, about, children }: HeadProps) {
  useTitle(title);
  return (
    <Group justify="space-between" align="flex-start" mb="lg" gap="sm">
      <Stack gap={4} maw={640}>
        <Title order={1} size="h2" className="text">
          {title}
        </Title>
        {about && (
          <Text c="dimmed" size="sm" component="div">
            {about}
          </Text>
        )}
      </Stack>
      {children && <Group gap="xs">{children}</Group>}
    </Group>
  );
}

export function useTitle(title: string): void {
  const name = useAbout().data?.name;
  useEffect(() => {
    document.title = name === undefined || name === title ? title : `${title} · ${name}`;
  }, [title, name]);
}
