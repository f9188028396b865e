/** Creates a topic by its name; the id of a name is the same on every node of the network. */
import { Button, Group, Modal, Stack, Switch, TextInput } from '@mantine/core';
import { useState } from 'react';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { TOPICS_KEY } from './data.js';

export function CreateTopic({ opened, onClose }: { readonly opened: boolean; readonly onClose: () => void }) {
  const t = useT();
  const [name, setName] = useState('');
  const [isPublic, setPublic] = useState(true);
  const create = useAction(
    async (typed: string) => {
      const query = { name: typed };
      const { topic_id } = await dataOf(api.GET('/v1/topics/resolve', { params: { query } }));
      const named = topic_id === typed ? {} : { name: typed };
      return dataOf(
        api.POST('/v1/admin/node-subscriptions', {
          body: { topic_id, ...named, pinned: true, public: isPublic },
        }),
      );
    },
    {
      changes: [TOPICS_KEY],
      onDone: () => {
        notifyDone(t('topics:created'));
        setName('');
        onClose();
      },
    },
  );
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      title={t('topics:create')}
      centered
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (name.trim() !== '') create.mutate(name.trim());
        }}
      >
        <Stack>
          <TextInput
            data-autofocus
            required
            maxLength={256}
            label={t('topics:idOrName')}
            description={t('topics:idOrNameAbout')}
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
          />
          <Switch
            label={t('topics:public')}
            description={t('topics:publicAbout')}
            checked={isPublic}
            onChange={(event) => setPublic(event.currentTarget.checked)}
          />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {t('shared:cancel')}
            </Button>
            <Button type="submit" loading={create.isPending} disabled={name.trim() === ''}>
              {t('topics:create')}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
