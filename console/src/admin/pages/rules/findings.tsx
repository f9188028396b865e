/** What a rule or a batch would match: numbers, the authors with most matches, and examples as text. */
import { Box, Group, Stack, Table, Text } from '@mantine/core';
import { EventText } from '../../../shared/components/event-text.js';
import { When } from '../../../shared/components/when.js';
import { number, percent } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { Someone } from '../../someone.js';
import './texts.js';

interface FindingsProps {
  readonly lookedAt: number;
  readonly matched: number;
  readonly authors: readonly { readonly pubkey: string; readonly events: number }[];
  readonly kinds: readonly { readonly kind: number; readonly events: number }[];
  readonly samples: readonly {
    readonly event_id: string;
    readonly pubkey: string;
    readonly kind: number;
    readonly created_at: number;
    readonly excerpt: string;
  }[];
}

const AUTHORS_SHOWN = 5;

export function Findings({ lookedAt, matched, authors, kinds, samples }: FindingsProps) {
  const t = useT();
  const share = lookedAt === 0 ? 0 : matched / lookedAt;
  return (
    <Stack gap="md">
      <div>
        <Text size="xl" fw={650} className="number">
          {t('rules:matches', { n: number(matched), of: number(lookedAt) })}
        </Text>
        <Text size="sm" c="dimmed">
          {t('rules:matchesShare', { share: percent(share), authors: number(authors.length) })}
        </Text>
      </div>
      {matched > 0 && (
        <>
          <Table aria-label={t('rules:byAuthor')} verticalSpacing={4}>
            <Table.Thead>
              <Table.Tr>
                <Table.Th>{t('rules:byAuthor')}</Table.Th>
                <Table.Th ta="right">{t('rules:events')}</Table.Th>
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {authors.slice(0, AUTHORS_SHOWN).map(({ pubkey, events }) => (
                <Table.Tr key={pubkey}>
                  <Table.Td>
                    <Someone pubkey={pubkey} />
                  </Table.Td>
                  <Table.Td ta="right" className="number">
                    {number(events)}
                  </Table.Td>
                </Table.Tr>
              ))}
            </Table.Tbody>
          </Table>
          <Text size="sm" c="dimmed">
            {kinds.map(({ kind, events }) => t('rules:ofKind', { kind, n: number(events) })).join(' · ')}
          </Text>
          <Stack gap="xs">
            <Text size="sm" fw={600}>
              {t('rules:examples')}
            </Text>
            {samples.map((sample) => (
              <Box key={sample.event_id} p="sm" bg="var(--mantine-color-default-hover)" bdrs="md">
                <EventText text={sample.excerpt} />
                <Group gap="sm" mt={4}>
                  <Someone pubkey={sample.pubkey} />
                  <Text size="xs" c="dimmed" component="div">
                    <When at={sample.created_at * 1_000} />
                  </Text>
                </Group>
              </Box>
            ))}
          </Stack>
        </>
      )}
    </Stack>
  );
}
