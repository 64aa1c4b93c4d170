// Compression and encryption of an envelope's body. What the body says, and the header before it, stand in envelope.go.

package l2

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// maxUnpacked bounds what a compressed body may grow to, so that a few bytes cannot ask for all memory. Larger bodies are not compressed.
const maxUnpacked = 64 << 20

var (
	errPlain   = errors.New("not encrypted, and Config.MigratePlain is not set")
	errKey     = errors.New("encrypted with a key that is not among Config.Keys")
	errCipher  = errors.New("encrypted for another entry, or tampered with")
	errPacking = errors.New("malformed compression")
	errForm    = errors.New("a form of body that this release does not know")
)

// seal closes bodies as its Config says and opens all forms. It is safe for concurrent use.
type seal struct {
	above        int // compress from here on, negative for never
	packer       *zstd.Encoder
	unpacker     *zstd.Decoder
	keys         []cipherKey
	migratePlain bool
}

type cipherKey struct {
	id   string
	aead cipher.AEAD // with a random nonce before each text
}

func newSeal(cfg Config) (*seal, error) {
	s := &seal{above: cfg.CompressAbove, migratePlain: cfg.MigratePlain}
	var err error
	if s.packer, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false)); err != nil {
		return nil, fmt.Errorf("l2: Redis: %w", err)
	}
	if s.unpacker, err = zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxUnpacked)); err != nil {
		return nil, fmt.Errorf("l2: Redis: %w", err)
	}
	for i, k := range cfg.Keys {
		block, err := aes.NewCipher(k.Secret)
		if err != nil {
			return nil, fmt.Errorf("l2: Redis: Config.Keys[%d]: %w", i, err)
		}
		aead, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return nil, fmt.Errorf("l2: Redis: Config.Keys[%d]: %w", i, err)
		}
		s.keys = append(s.keys, cipherKey{k.ID, aead})
	}
	return s, nil
}

// overhead is how many bytes close may add.
func (s *seal) overhead() int {
	if len(s.keys) == 0 {
		return 0
	}
	return binary.MaxVarintLen32 + len(s.keys[0].id) + s.keys[0].aead.Overhead()
}

// close packs and encrypts the body at the end of b, a header and a plain body, and notes in the header how. address is what the body is bound to.
func (s *seal) close(b, address []byte) []byte {
	if size := len(b) - bodyAt; s.above >= 0 && size >= s.above && size <= maxUnpacked {
		if packed := s.packer.EncodeAll(b[bodyAt:], nil); len(packed) < size {
			b = append(b[:bodyAt], packed...)
			b[formAt] |= compressed
		}
	}
	if len(s.keys) == 0 {
		return b
	}
	b[formAt] |= encrypted
	key := s.keys[0]
	body := append([]byte(nil), b[bodyAt:]...)
	address = append(address, b[staleAt:bodyAt]...)
	b = appendString(b[:bodyAt], key.id)
	return key.aead.Seal(b, nil, body, address)
}

// open returns the plain body of an envelope without its checksum.
func (s *seal) open(envelope string, address []byte) (string, error) {
	form, body := envelope[formAt], envelope[bodyAt:]
	if form&^(compressed|encrypted) != 0 {
		return "", errForm
	}
	if form&encrypted == 0 && len(s.keys) > 0 && !s.migratePlain {
		return "", errPlain
	}
	if form&encrypted != 0 {
		plain, err := s.decrypt(body, append(address, envelope[staleAt:bodyAt]...))
		if err != nil {
			return "", err
		}
		body = plain
	}
	if form&compressed == 0 {
		return body, nil
	}
	plain, err := s.unpacker.DecodeAll([]byte(body), nil)
	if err != nil {
		return "", errPacking
	}
	return string(plain), nil
}

func (s *seal) decrypt(body string, address []byte) (string, error) {
	f := fields{rest: body}
	id := f.string()
	for _, key := range s.keys {
		if key.id != id || f.broken {
			continue
		}
		plain, err := key.aead.Open(nil, nil, []byte(f.rest), address)
		if err != nil {
			return "", errCipher
		}
		return string(plain), nil
	}
	return "", errKey
}
