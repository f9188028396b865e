/** Says that only operators of the node may change what a page shows. */
import { Group, Paper, Text, ThemeIcon } from '@mantine/core';
import { IconInfoCircle } from '@tabler/icons-react';

export function OnlyNode({ children }: { readonly children: string }) {
  return (
    <Paper withBorder p="sm" mb="md">
      <Group gap="sm" wrap="nowrap">
        <ThemeIcon variant="light" color="gray" radius="xl">
          <IconInfoCircle size={18} />
        </ThemeIcon>
        <Text size="sm">{children}</Text>
      </Group>
    </Paper>
  );
}
