/** What a member would see: who is served the event, and if not, why. Any key can be checked. */
import { Group, Stack, Table, Text, TextInput, ThemeIcon } from '@mantine/core';
import { IconCheck, IconX } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { api, dataOf } from '../../../shared/api.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { text, useFilters } from '../../../shared/filters.js';
import { useT } from '../../../shared/i18n.js';
import { pubkeyOf } from '../../../shared/keys.js';
import { Someone } from '../../someone.js';

const filters = { reader: text };

export function Readers({ id }: { readonly id: string }) {
  const t = useT();
  const [{ reader }, set] = useFilters(filters);
  const key = reader === undefined ? undefined : pubkeyOf(reader);
  const { data, error, refetch } = useQuery({
    queryKey: ['event-readers', id, key],
    queryFn: () => {
      const query = key === undefined ? {} : { reader: key };
      const params = { path: { event_id: id }, query };
      return dataOf(api.GET('/v1/admin/events/{event_id}/readers', { params }));
    },
    placeholderData: (before) => before,
  });
  if (error !== null) return <Failure error={error} retry={() => void refetch()} />;
  if (data === undefined) return <Loading />;
  return (
    <Stack>
      <Table aria-label={t('events:readersList')} verticalSpacing="xs">
        <Table.Tbody>
          {data.readers.map(({ reader: name, pubkey, why }) => (
            <Table.Tr key={name}>
              <Table.Th fw={500} scope="row">
                <Stack gap={2}>
                  {t(`events:reader.${name}`)}
                  {name === 'asked' && pubkey !== null && (
                    <Someone pubkey={pubkey} to={`/members/${pubkey}`} />
                  )}
                </Stack>
              </Table.Th>
              <Table.Td>
                <Group gap={8} wrap="nowrap">
                  <ThemeIcon size={20} radius="xl" color={why === null ? 'teal.8' : 'gray.6'} aria-hidden>
                    {why === null ? <IconCheck size={13} /> : <IconX size={13} />}
                  </ThemeIcon>
                  <Text size="sm">{why === null ? t('events:servedTo') : t(`events:why.${why}`)}</Text>
                </Group>
              </Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
      <TextInput
        label={t('events:askReader')}
        placeholder={t('events:authorHint')}
        maw={420}
        autoComplete="off"
        spellCheck={false}
        defaultValue={reader ?? ''}
        error={reader !== undefined && key === undefined ? t('events:authorWrong') : undefined}
        onChange={(event) => set({ reader: event.currentTarget.value.trim() })}
      />
    </Stack>
  );
}
