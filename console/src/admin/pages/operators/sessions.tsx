/** Sessions: list and end those of oneself, and all of another key. */
import { Badge, Button, Group, Modal, Stack, Table, Text } from '@mantine/core';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import type { paths } from '../../../shared/schema.js';
import { Someone } from '../../someone.js';
import './texts.js';

type Sessions = paths['/v1/admin/sessions']['get']['responses'][200]['content']['application/json'];
type Listed = Sessions['items'][number];
const OWN = ['sessions'];

interface SessionTableProps {
  readonly items: readonly Listed[];
  readonly onEnd?: (sessionId: string) => void;
}

function SessionTable({ items, onEnd }: SessionTableProps) {
  const t = useT();
  return (
    <div className="table-scroll">
      <Table aria-label={t('operators:sessions')}>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>{t('operators:started')}</Table.Th>
            <Table.Th>{t('operators:expires')}</Table.Th>
            {onEnd && <Table.Th w={130}>{t('operators:end')}</Table.Th>}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {items.map((session) => (
            <Table.Tr key={session.session_id}>
              <Table.Td>
                <Group gap="xs">
                  <When at={session.created_at} />
                  {session.current && (
                    <Badge variant="dot" tt="none">
                      {t('operators:thisOne')}
                    </Badge>
                  )}
                </Group>
              </Table.Td>
              <Table.Td>
                <When at={session.expires_at} />
              </Table.Td>
              {onEnd && (
                <Table.Td>
                  {!session.current && (
                    <Button size="compact-sm" variant="default" onClick={() => onEnd(session.session_id)}>
                      {t('operators:end')}
                    </Button>
                  )}
                </Table.Td>
              )}
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </div>
  );
}

export function OwnSessions() {
  const t = useT();
  const query = useQuery({ queryKey: OWN, queryFn: () => dataOf(api.GET('/v1/admin/sessions')) });
  const ending = useAction(
    (sessionId: string) =>
      api.DELETE('/v1/admin/sessions/{session_id}', { params: { path: { session_id: sessionId } } }),
    { changes: [OWN], onDone: () => notifyDone(t('operators:endedOne')) },
  );
  if (query.isPending) return <Loading />;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  return <SessionTable items={query.data.items} onEnd={(id) => ending.mutate(id)} />;
}

export function SessionsOf({ pubkey, onClose }: { readonly pubkey: string; readonly onClose: () => void }) {
  const t = useT();
  const client = useQueryClient();
  const params = { path: { pubkey } };
  const key = ['sessions', pubkey];
  const query = useQuery({
    queryKey: key,
    queryFn: () => dataOf(api.GET('/v1/admin/operators/{pubkey}/sessions', { params })),
  });
  const ending = useAction(() => dataOf(api.DELETE('/v1/admin/operators/{pubkey}/sessions', { params })), {
    changes: [key],
    onDone: ({ ended }) => {
      notifyDone(t('operators:ended', { n: number(ended) }));
      void client.invalidateQueries({ queryKey: ['session'] });
    },
  });
  const items = query.data?.items ?? [];
  return (
    <Modal
      opened
      size="lg"
      onClose={onClose}
      title={t('operators:sessions')}
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      <Stack>
        <Someone pubkey={pubkey} />
        {query.isPending && <Loading />}
        {query.isError && <Failure error={query.error} />}
        {query.data && items.length === 0 && <Text size="sm">{t('operators:noSessions')}</Text>}
        {items.length > 0 && (
          <>
            <SessionTable items={items} />
            <Button color="red.8" loading={ending.isPending} onClick={() => ending.mutate(undefined)}>
              {t('operators:endAll', { n: number(items.length) })}
            </Button>
          </>
        )}
      </Stack>
    </Modal>
  );
}
