/** Writes a post or a reply, signed by the member. */
import { Alert, Button, Group, Stack, Text, Textarea } from '@mantine/core';
import { IconSend } from '@tabler/icons-react';
import { useMutation } from '@tanstack/react-query';
import type { VerifiedEvent } from 'nostr-tools/pure';
import { useState } from 'react';
import { useT } from '../../shared/i18n.js';
import { notifyDone } from '../../shared/providers.js';
import { RelayRefusal, relay } from '../relay.js';
import { sign } from '../session.js';
import { TermsDialog } from './terms.js';

interface ComposerProps {
  readonly topic: string | undefined;
  readonly replyTo?: VerifiedEvent;
  readonly onDone?: () => void;
}

export function Composer({ topic, replyTo, onDone }: ComposerProps) {
  const t = useT();
  const [content, setContent] = useState('');
  const [needsTerms, setNeedsTerms] = useState(false);
  const posting = useMutation({
    mutationFn: async () => {
      const event = await sign({ kind: 1, content: content.trim(), tags: tagsOf(topic, replyTo) });
      await relay.publish(event);
    },
    onSuccess: () => {
      setContent('');
      notifyDone(t('home:posted'));
      onDone?.();
    },
    onError: (error) => setNeedsTerms(error instanceof RelayRefusal && error.needsConsent),
    meta: { quiet: true },
  });
  const send = () => {
    if (content.trim() !== '' && !posting.isPending) posting.mutate();
  };
  const label = t(replyTo === undefined ? 'home:newPost' : 'home:newReply');
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <Stack gap="xs">
        <Textarea
          label={label}
          autosize
          minRows={2}
          maxRows={12}
          autoFocus={replyTo !== undefined}
          value={content}
          onChange={(event) => setContent(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) send();
          }}
        />
        {posting.isError && (
          <Alert color="red" role="alert" title={t('home:notPosted')}>
            <Text size="sm">{posting.error.message}</Text>
          </Alert>
        )}
        <Group justify="space-between">
          <Text size="xs" c="dimmed">
            {t('home:postsArePublic')}
          </Text>
          <Button
            type="submit"
            size="sm"
            leftSection={<IconSend size={15} />}
            loading={posting.isPending}
            disabled={content.trim() === ''}
          >
            {t(replyTo === undefined ? 'home:post' : 'home:reply')}
          </Button>
        </Group>
      </Stack>
      <TermsDialog opened={needsTerms} onClose={() => setNeedsTerms(false)} onAgreed={send} />
    </form>
  );
}

/** NIP-10: the root of the conversation, the post that is answered, and its author. */
function tagsOf(topic: string | undefined, parent: VerifiedEvent | undefined): string[][] {
  const own = topic === undefined ? [] : [['t', topic]];
  if (parent === undefined) return own;
  const root = parent.tags.find(([name, , , mark]) => name === 'e' && mark === 'root')?.[1];
  const inherited = topic === undefined ? parent.tags.filter(([name]) => name === 't') : own;
  const chain =
    root === undefined
      ? [['e', parent.id, '', 'root']]
      : [
          ['e', root, '', 'root'],
          ['e', parent.id, '', 'reply'],
        ];
  return [...inherited, ...chain, ['p', parent.pubkey]];
}
